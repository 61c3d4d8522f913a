#!/bin/sh
#SBATCH --mail-type=END,FAIL --mail-user=ann@example.org
sleep 1
