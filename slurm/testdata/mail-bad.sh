#!/bin/sh
#SBATCH --mail-type=SOMETIMES
sleep 1
