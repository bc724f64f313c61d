"""Work that goes on after the answer: long enrolments and calibrations, which survive a restart."""
