! SPDX-License-Identifier: Apache-2.0
! What the module chorale promises, with the models of library.cpp; and that each mistake is one sentence.
program fortran_test
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use chorale
  implicit none

  integer, parameter :: rows = 20
  real(real32) :: x(3, rows), y(2, rows), out(2, rows), again(2, rows)
  real(real32) :: points(2, 3) = reshape([1, 0, 0, 1, -1, -1], [2, 3])
  real(real64) :: wide(3, rows), wide_y(2, rows), wide_out(2, rows), loss, first, value
  integer(int32) :: labels(1, 3) = reshape([0, 1, 2], [1, 3])
  integer(int64) :: steps
  integer :: i, stat, failed = 0, inputs, targets, outputs
  character(400) :: folder = "."
  type(chorale_trainer) :: model, other, copied

  if (command_argument_count() > 0) call get_command_argument(1, folder)
  do i = 1, rows
    x(:, i) = [0.1 * mod(i, 7), 0.2 * mod(i, 3), 0.05 * mod(i, 5)]
    y(:, i) = [x(1, i), x(1, i) - x(3, i)]
  end do
  wide = x
  wide_y = y

  call model%create("plane  ", chorale_alone, seed=7)
  call model%widths(inputs, targets, outputs)
  call report(inputs == 3 .and. targets == 2 .and. outputs == 2, "a model tells how many numbers a row has")
  call other%create("plane", chorale_alone, seed=7)
  call model%evaluate(x, y, first)
  do i = 1, 300
    call model%train(x, y, loss)
    call other%train(wide, wide_y)
  end do
  call report(loss < 0.01 * first, "the loss is a hundredth of the first one after 300 steps")
  call model%steps(steps)
  call report(steps == 300, "steps are counted")
  call model%predict(x, out)
  call other%predict(wide, wide_out)
  call report(all(real(out, real64) == wide_out), "reals of both kinds train and predict alike")
  call model%save(trim(folder) // "/fortran.safetensors")
  call other%create("plane", chorale_alone, seed=8)
  call other%load(trim(folder) // "/fortran.safetensors")
  call other%predict(x, again)
  call report(all(out == again), "what was saved predicts the same after it was loaded")

  call model%train(x(:, 1:9), y(:, 1:8), stat=stat)
  call refused("x has 9 rows, but y has 8")
  call model%train(x(1:2, :), y, stat=stat)
  call refused("x has rows of 2 numbers, but the model has 3 there")
  call model%train(transpose(x), transpose(y), stat=stat)
  call refused("x has rows of 20 numbers, but the model has 3 there")
  call model%train(x(:, ::2), y(:, ::2), stat=stat)
  call refused("x has 10 rows that do not lie one after another")
  call model%predict(x, out(:, 1:19), stat=stat)
  call refused("x has 20 rows, but y has 19")
  call model%metric("accuracy", value, stat)
  call refused("the model has no metric accuracy")
  call model%train(x(:, 5:12), y(:, 5:12), stat=stat)
  call report(stat == 0, "rows that lie one after another are a part of an array, and training goes on")
  call model%destroy()
  call model%train(x, y, stat=stat)
  call refused("the argument trainer is NULL")
  call model%create("plain", chorale_alone, stat=stat)
  call refused("this library has no model ""plain""")

  call model%create("kinds", chorale_alone, seed=1)
  do i = 1, 50
    call model%train(points, labels)
  end do
  call model%metric("accuracy", value)
  call report(value == 1, "labels are integers")
  copied = model
  call model%destroy()
  call copied%train(points, labels, stat=stat)
  call refused("this trainer has ended")
  call copied%destroy(stat)
  call refused("b = a copies the handle, and not the trainer")
  call model%create("kinds", chorale_alone, seed=1)
  call copied%create("kinds", chorale_alone, seed=2)
  call model%train(points, labels)
  call copied%train(points, labels)
  call report(.true., "a handle that was copied may have a trainer of its own")
  call model%destroy()
  call copied%destroy()
  call other%destroy()
  if (failed /= 0) stop 1

contains

  subroutine report(holds, what)
    logical, intent(in) :: holds
    character(*), intent(in) :: what
    print "(3a)", merge("PASSED", "FAILED", holds), ": ", what
    if (.not. holds) then
      failed = failed + 1
      print "(2a)", "  the last sentence: ", chorale_message()
    end if
  end subroutine

  ! The code is that of a bad argument, and the sentence says `text`.
  subroutine refused(text)
    character(*), intent(in) :: text
    call report(stat == 2 .and. index(chorale_message(), text) > 0, text)
  end subroutine

end program
