#!/bin/sh
#SBATCH --nice=much
sleep 1
