#!/bin/sh
#SBATCH --job-name="my job" # with a comment
sleep 1
