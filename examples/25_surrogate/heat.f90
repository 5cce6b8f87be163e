! SPDX-License-Identifier: Apache-2.0
!
! The heat solver of heat.c in Fortran, which trains a surrogate of itself while it runs: the same cells, the same loss.
!
!   mpirun -n 4 ./heat_fortran          see the page docs/36-solvers.md for how it is built
program heat_in_fortran
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use mpi
  use chorale
  implicit none

  integer, parameter :: cells = 96, reach = 2, inputs = 6, every = 10, last = 1000
  integer :: bar, error, ranks, rank, left, right, first, n, step, i
  integer(int64) :: steps
  real(real64) :: loss = 0, total = 0, off
  real(real64), allocatable :: u(:), next(:), before(:, :), now(:, :), expected(:, :)
  real(real64), pointer :: middle(:, :)
  type(chorale_trainer) :: model
  character(200) :: file
  target :: u

  call mpi_init(error)
  call mpi_comm_size(MPI_COMM_WORLD, ranks, error)
  call mpi_cart_create(MPI_COMM_WORLD, 1, [ranks], [.false.], .true., bar, error)
  call mpi_comm_rank(bar, rank, error)
  call mpi_cart_shift(bar, 0, 1, left, right, error)

  first = cells * rank / ranks
  n = cells * (rank + 1) / ranks - first
  allocate(u(1 - reach:n + reach), next(n), before(inputs, n), now(inputs, n), expected(1, n))
  u = 0
  off = 0
  middle(1:1, 1:n) => u(1:n)                                               ! the cells of this rank: rows of one number

  call model%create("surrogate", bar, seed=7)
  do step = 0, last - 1
    call exchange()
    if (mod(step, every) == 0) then
      if (step > 0) call model%train(before, middle, loss)
      total = total + loss
      call look(before)
    end if
    if (mod(step, every) == every / 2) then
      off = 0                                                              ! what was expected ten steps ago
      if (step > every) off = maxval([0.0_real64, abs(expected(1, :) - u(1:n))])
      call look(now)
      call model%predict(now, expected)
    end if
    do i = 1, n
      next(i) = 0.99_real64 * u(i) + 0.25_real64 * (u(i - 1) - 2 * u(i) + u(i + 1)) + 0.02_real64 * heat(i)
    end do
    u(1:n) = next
  end do
  call mpi_allreduce(MPI_IN_PLACE, off, 1, MPI_DOUBLE_PRECISION, MPI_MAX, bar, error)
  call model%steps(steps)
  if (rank == 0) print "(2(a, f11.9), a, i0, a, f6.4, a)", "loss ", loss, ", on average ", &
    total / real(steps, real64), ", after ", steps, " steps of training; prediction off by ", off, " at most"
  file = "surrogate.safetensors"
  if (command_argument_count() > 0) call get_command_argument(1, file)
  call model%save(file)
  call model%destroy()
  call mpi_comm_free(bar, error)
  call mpi_finalize(error)

contains

  ! The heat that comes to cell i of this rank in a step.
  real(real64) function heat(i)
    integer, intent(in) :: i
    real(real64) :: apart
    apart = (first + i - 1 + 0.5_real64) / cells - (0.5_real64 + 0.3_real64 * sin(0.004_real64 * step))
    heat = exp(-100 * apart * apart)
  end function

  ! Gets the two cells beside those of this rank; beyond the ends of the bar they are 0.
  subroutine exchange()
    call mpi_sendrecv(u(1), reach, MPI_DOUBLE_PRECISION, left, 1, u(n + 1), reach, MPI_DOUBLE_PRECISION, right, 1, &
                      bar, MPI_STATUS_IGNORE, error)
    call mpi_sendrecv(u(n - reach + 1), reach, MPI_DOUBLE_PRECISION, right, 2, u(1 - reach), reach, &
                      MPI_DOUBLE_PRECISION, left, 2, bar, MPI_STATUS_IGNORE, error)
  end subroutine

  ! What the model sees of each cell: five temperatures, and the heat.
  subroutine look(x)
    real(real64), intent(out) :: x(inputs, n)
    do i = 1, n
      x(1:inputs - 1, i) = u(i - reach:i + reach)
      x(inputs, i) = heat(i)
    end do
  end subroutine

end program
