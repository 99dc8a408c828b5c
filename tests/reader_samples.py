"""Small files of task data, as text."""

CONLLU = (
    "# text = Don't go\n"
    "1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "1\tDo\tdo\tAUX\tVB\t_\t3\taux\t_\t_\n"
    "2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_\n"
    "2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t_\t_\n"
    "3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_\n"
)

PAIR = {"sentence1": "A man eats.", "sentence2": "He eats.", "gold_label": "entailment"}

PROPS = """\
The  DT  -     (A0*  (A1*
cat  NN  -     *)    *)
sat  VBD sit   (V*)  *
and  CC  -     *     *
purred VBD purr *    (V*)
"""

CONLL_2012 = """\
#begin document (nw/x); part 000
nw/x 0 0 She PRP (TOP(S* - - - spk * (ARG0*) (3)
nw/x 0 1 has VBZ * have 01 - spk * (V*) -
nw/x 0 2 cats NNS *)) - - - spk * (ARG1*) -

nw/x 0 0 Oh UH (TOP*) - - - spk * -
#end document
"""


def squad(context, *answers):
    """A file of one question in the layout of SQuAD, as an object."""
    qas = [{"id": "q1", "question": "Who?", "answers": list(answers)}]
    paragraphs = [{"context": context, "qas": qas}]
    return {"version": "1.1", "data": [{"title": "T", "paragraphs": paragraphs}]}


def litbank(rows, name="b"):
    """A document of words and marks of coreference in the columns of LitBank."""
    lines = [f"#begin document ({name}); part 0"]
    for row in rows:
        lines.append("\t".join([name, "0", "0", row[0], *"________", row[1]]) if row else "")
    return "\n".join([*lines, "#end document", ""])
