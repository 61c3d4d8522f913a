#!/bin/sh
#SBATCH --time=1:2:3:4
sleep 1
