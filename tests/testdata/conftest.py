"""The trees below are targets of the runner's tests, not tests of ours."""

collect_ignore_glob = ["*"]
