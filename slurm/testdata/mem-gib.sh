#!/bin/sh
#SBATCH --mem=4GiB
sleep 1
