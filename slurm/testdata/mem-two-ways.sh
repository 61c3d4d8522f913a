#!/bin/sh
#SBATCH --mem=1G --mem-per-cpu=1G
sleep 1
