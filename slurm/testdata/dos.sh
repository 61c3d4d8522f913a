#!/bin/sh
#SBATCH -t 3
true
