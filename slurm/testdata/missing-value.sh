#!/bin/sh
#SBATCH --time
sleep 1
