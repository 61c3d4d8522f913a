#!/bin/sh
#SBATCH --begin=2020-01-01
sleep 1
