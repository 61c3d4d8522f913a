#!/bin/sh
#SBATCH	--time=6	-n	2
sleep 1
