"""What a plan costs: pure mathematics that knows plans and never sees data.

Words that the field has no name for, as they are used in this room: the two *neighbours* are data
sets that differ in one record, and also the runs on them; a *hit* is a step in which that record
takes part; a *window* is the last steps of a run, the only ones that are accounted for; a *shift*
is the distance by which hits may have moved the two runs apart, and a *payment* the part of it that
one step's noise hides (shifted interpolation, theory, section 4).
"""
