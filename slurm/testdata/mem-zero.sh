#!/bin/sh
#SBATCH --mem=0
sleep 1
