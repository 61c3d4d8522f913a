#!/bin/sh
#SBATCH -w nix
sleep 1
