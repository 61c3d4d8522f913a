#!/bin/sh
#SBATCH --gres=fpga:1
sleep 1
