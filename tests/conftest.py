"""What all tests share."""

import torch

# Tests run many small models; a second thread gains nothing and, when cores are shared, costs a lot.
torch.set_num_threads(1)
