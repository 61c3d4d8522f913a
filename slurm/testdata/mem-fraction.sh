#!/bin/sh
#SBATCH --mem=1.5G
sleep 1
