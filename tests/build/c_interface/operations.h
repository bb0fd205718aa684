/* Every operation computes what it should, with its options; prints faults and returns how many. */
int check_operations(void);
/* The same of operations over pages, ranges of keys and caches: in pages.c. */
int check_pages_and_caches(void);
/* The same of recurrences: in recurrences.c. */
int check_recurrences(void);
/* The same of recurrences over pools of states: in state_pools.c. */
int check_state_pools(void);
