from pathlib import Path

HERE = Path(__file__).parent.parent


def write(text):
    (HERE / "data" / "kept.txt").write_text(text)
    return text
