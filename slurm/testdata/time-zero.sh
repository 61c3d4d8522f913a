#!/bin/sh
#SBATCH --time=0
sleep 1
