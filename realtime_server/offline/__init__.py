"""Whole recordings: from files to samples, and from sentences to texts and subtitles."""
