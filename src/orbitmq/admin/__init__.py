"""The administrator's operations: what is asked of a whole cluster, and what is changed in it, over `operations/`.

Every answer says what could not be asked, by name, and never shows a smaller figure instead. Knows no command line and
no page: both stand on it.
"""
