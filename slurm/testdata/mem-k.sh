#!/bin/sh
#SBATCH --mem=1025K
sleep 1
