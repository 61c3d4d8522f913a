#!/bin/sh
#SBATCH --signal=B:
sleep 1
