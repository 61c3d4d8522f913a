#!/bin/sh
#SBATCH --export=HOME,FOO=bar
sleep 1
