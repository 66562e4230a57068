"""Views of applications: what they ask for and hold, live ones and those that have ended."""
