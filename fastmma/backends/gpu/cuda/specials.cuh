// What a number is, as the tables of elements say it.
enum { FINITE, INFINITE, NOT_A_NUMBER };
