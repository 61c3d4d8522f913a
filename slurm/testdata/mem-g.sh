#!/bin/sh
#SBATCH --mem=4G
sleep 1
