"""Einmal gerechnet: ein LoRA-Kernel für lineare Schichten (größer als nötig, aber schlüssig)."""
