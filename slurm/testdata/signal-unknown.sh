#!/bin/sh
#SBATCH --signal=FOO@3
sleep 1
