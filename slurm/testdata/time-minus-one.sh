#!/bin/sh
#SBATCH --time=-1
sleep 1
