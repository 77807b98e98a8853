import shutil

from notes import HERE, write


def test_starts_from_the_original_tree():
    assert (HERE / "data" / "kept.txt").read_text() == "original\n"
    assert (HERE / "data" / "doomed.txt").read_text() == "doomed\n"
    assert not (HERE / "made").exists()


def test_leaves_a_mess():
    assert write("changed") == "changed"
    (HERE / "data" / "doomed.txt").unlink()
    (HERE / "made" / "deep").mkdir(parents=True)
    (HERE / "made" / "deep" / "file.txt").write_text("new")
    (HERE / "made").chmod(0o500)
    (HERE / "src" / "notes.py").chmod(0o400)
    shutil.copy(HERE / "README.md", HERE / "src" / "extra.py")
