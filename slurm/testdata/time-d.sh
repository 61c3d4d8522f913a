#!/bin/sh
#SBATCH --time=2-
sleep 1
