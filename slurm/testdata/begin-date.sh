#!/bin/sh
#SBATCH --begin=2031-02-03
sleep 1
