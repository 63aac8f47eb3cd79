"""`python -m bucketproof` is `bucketproof`."""

import sys

from bucketproof.cli import main

sys.exit(main())
