#!/bin/sh
#SBATCH --begin=2031-13-01
sleep 1
