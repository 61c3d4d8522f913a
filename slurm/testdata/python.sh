#!/usr/bin/env python3
#SBATCH -t 3
print(1)
