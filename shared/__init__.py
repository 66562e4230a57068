"""Holds what a core and its clients both use: amounts as people read and write them, texts made safe to show, and some
choices that both make alike. It imports nothing else of Kornel."""
