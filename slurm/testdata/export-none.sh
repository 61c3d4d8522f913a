#!/bin/sh
#SBATCH --export=NONE
sleep 1
