/* Every operation computes what it should, with its options; prints faults and returns how many. */
int check_operations(void);
/* The same of operations over pages, ranges of keys and caches: in pages.c. */
int check_pages_and_caches(void);
/* The same of recurrences: in recurrences.c. */
int check_recurrences(void);
/* The same of latent attention: in latents.c. */
int check_latents(void);
/* The same of weights in few bits: in weights.c. */
int check_weights(void);
/* The same of matrix products: in matmul.c. */
int check_matmuls(void);
/* The same of losses: in losses.c. */
int check_losses(void);
/* The same of recurrences over pools of states: in state_pools.c. */
int check_state_pools(void);
/* The same of attention of 8 bits: in fp8.c. */
int check_fp8_attention(void);
/* The same of products of 8 bits: in scaled_matmul.c. */
int check_scaled_matmuls(void);
