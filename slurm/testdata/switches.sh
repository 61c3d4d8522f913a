#!/bin/sh
#SBATCH --switches=1
sleep 1
