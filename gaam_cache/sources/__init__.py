"""Where rows come from; a file in this folder is a source."""
