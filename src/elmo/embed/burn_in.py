"""A few sentences of plain English, read once to bring a model's state to running order."""

_TEXT = """\
The old library stands at the end of a quiet street , between a bakery and a small park .
Its doors open at nine , and by ten most of the tables near the windows are taken .
Some people come to read the papers ; others bring their own work and stay until the evening .
On Mondays a group of retired engineers meets in the back room to talk about bridges .
" We have seen many plans for this town , " one of them said , " but few were ever built . "
Last year the city council voted to spend $ 2.4 million on a new roof and better heating .
The work was expected to take six months , but it was finished in less than five .
Since then , the number of visitors has grown by almost a third , according to the director .
She believes that the reason is simple : it is warm , it is free , and nobody is in a hurry .
Children learn to use the catalogue in the morning , and their parents follow after lunch .
Not everyone is happy with the changes , however .
The owner of the bakery says that he now sells twice as much bread , and sleeps half as long .
In the summer , when the windows are open , the smell of his ovens fills the reading room .
Nobody has ever complained about that .
The director hopes that the building will serve the town for another hundred years .
"""

BURN_IN_SENTENCES: tuple[tuple[str, ...], ...] = tuple(
    tuple(line.split()) for line in _TEXT.splitlines()
)
