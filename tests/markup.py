"""HTML as a browser would have to take it."""

from html.parser import HTMLParser

VOID = {"meta", "img", "input"}


class Balanced(HTMLParser):
    """Collects tags, attributes and text, and fails on a tag that closes another."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.texts.append(text)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]
