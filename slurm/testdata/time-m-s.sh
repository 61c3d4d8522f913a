#!/bin/sh
#SBATCH --time=10:30
sleep 1
