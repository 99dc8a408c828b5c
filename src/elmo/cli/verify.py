"""The command elmo verify: is a model what was saved?"""

from __future__ import annotations

from elmo.cli.main import DONE, REFUSED, AsJson, app, say, show


@app.command(name="verify")
def verify(model: str, /, *, as_json: AsJson = False) -> int:
    """Check the files of a model: their checksums, and every tensor.

    Models in the format elmo have SHA256SUMS, written when they are saved; sha256sum -c checks it,
    too. Of other models, tensors are read and checked alone.

    Parameters
    ----------
    model
        A name that elmo models lists, a folder, weights file, archive, or repository of the
        Hugging Face Hub.
    """
    import dataclasses
    import json

    from elmo.hub.names import find_folder
    from elmo.weights.integrity import verify_model

    found = verify_model(find_folder(model))
    if as_json:
        content = {**dataclasses.asdict(found), "path": str(found.path), "damaged": found.damaged}
        show(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        width = max(len(part.name) for part in found.findings)
        for part in found.findings:
            show(f"{part.name:<{width}}  {part.state}")
    if found.damaged:
        say(
            f"error: {model} is damaged or changed: {', '.join(found.damaged)}. Get it again, or, "
            "if you changed it yourself, save it again"
        )
        return REFUSED
    if not found.is_recorded:
        say("note: not all files have a recorded checksum; elmo convert writes a copy that has")
    return DONE
