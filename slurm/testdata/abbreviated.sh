#!/bin/sh
#SBATCH --cpus-per-t=4 --job=short
sleep 1
