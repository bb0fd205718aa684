/* Every operation computes what it should, with its options; prints faults and returns how many. */
int check_operations(void);
