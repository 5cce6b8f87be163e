! SPDX-License-Identifier: Apache-2.0
!
! Training from Fortran: the functions of chorale.h. See docs/36-solvers.md.
!
!   use chorale
!   type(chorale_trainer) :: model
!   call model%create("surrogate", comm, seed=7)          comm of use mpi; comm%MPI_VAL of use mpi_f08
!   call model%train(x, y, loss)                          x (inputs, rows), y (targets, rows)
!   call model%predict(x, y)                              y (outputs, rows)
!   call model%destroy()                                  before MPI_Finalize
!
! An assignment copies the handle, and not the trainer: after a destroy, calls with either are refused.
!
! Arrays are real32 or real64, and whole, so that rows lie one after another: they are not copied. Targets of a model
! with labels are int32. Each procedure ends the program with one sentence where it fails, or, with the argument stat,
! returns a code of chorale.h: then chorale_message() is the sentence.
module chorale
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
  implicit none
  private
  public :: chorale_trainer, chorale_message

  integer, parameter, public :: chorale_alone = -1                         ! in place of a communicator

  integer(c_int), parameter :: f32 = 1, f64 = 2, i32 = 3, scattered = 4

  type, bind(c) :: rows_in_memory
    type(c_ptr) :: numbers
    integer(c_size_t) :: width, rows
    integer(c_int) :: kind_of
  end type

  ! A model with its variables, which this process trains with those of its communicator.
  type :: chorale_trainer
    private
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create, destroy, save => save_variables, load => load_variables, widths, steps, metric, &
                 set_learning_rate
    procedure, private :: train_f32, train_f64, train_labels, evaluate_f32, evaluate_f64, evaluate_labels, &
                          predict_f32, predict_f64
    generic :: train => train_f32, train_f64, train_labels
    generic :: evaluate => evaluate_f32, evaluate_f64, evaluate_labels
    generic :: predict => predict_f32, predict_f64
  end type

  interface
    integer(c_int) function c_create(model, communicator, seed, trainer) bind(c, name="chorale_create")
      import
      character(kind=c_char), intent(in) :: model(*)
      integer(c_int), value :: communicator
      integer(c_int64_t), value :: seed
      type(c_ptr), intent(out) :: trainer
    end function
    integer(c_int) function c_destroy(trainer) bind(c, name="chorale_destroy")
      import
      type(c_ptr), value :: trainer
    end function
    integer(c_int) function c_train(trainer, x, y, loss) bind(c, name="chorale_train")
      import
      type(c_ptr), value :: trainer
      type(rows_in_memory), value :: x, y
      real(c_double), intent(out), optional :: loss
    end function
    integer(c_int) function c_evaluate(trainer, x, y, loss) bind(c, name="chorale_evaluate")
      import
      type(c_ptr), value :: trainer
      type(rows_in_memory), value :: x, y
      real(c_double), intent(out) :: loss
    end function
    integer(c_int) function c_predict(trainer, x, y) bind(c, name="chorale_predict")
      import
      type(c_ptr), value :: trainer
      type(rows_in_memory), value :: x, y
    end function
    integer(c_int) function c_save(trainer, file) bind(c, name="chorale_save")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function c_load(trainer, file) bind(c, name="chorale_load")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: file(*)
    end function
    integer(c_int) function c_metric(trainer, name, value) bind(c, name="chorale_metric")
      import
      type(c_ptr), value :: trainer
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(out) :: value
    end function
    integer(c_int) function c_widths(trainer, inputs, targets, outputs) bind(c, name="chorale_widths")
      import
      type(c_ptr), value :: trainer
      integer(c_size_t), intent(out) :: inputs, targets, outputs
    end function
    integer(c_int) function c_steps(trainer, steps) bind(c, name="chorale_steps")
      import
      type(c_ptr), value :: trainer
      integer(c_int64_t), intent(out) :: steps
    end function
    integer(c_int) function c_set_learning_rate(trainer, rate) bind(c, name="chorale_set_learning_rate")
      import
      type(c_ptr), value :: trainer
      real(c_double), value :: rate
    end function
    type(c_ptr) function c_message() bind(c, name="chorale_message")
      import
    end function
    integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
      import
      type(c_ptr), value :: text
    end function
  end interface

contains

  ! Makes the trainer; every process of the communicator calls it, with the same model and seed.
  subroutine create(self, model, communicator, seed, stat)
    class(chorale_trainer), intent(inout) :: self
    character(*), intent(in) :: model
    integer, intent(in) :: communicator
    integer, intent(in), optional :: seed
    integer, intent(out), optional :: stat
    integer(c_int64_t) :: number
    integer :: ended
    number = 0
    if (present(seed)) number = int(seed, c_int64_t)
    if (c_associated(self%handle)) call self%destroy(ended)                ! or it has ended by a copy of self
    call finish(c_create(trim(model) // c_null_char, int(communicator, c_int), number, self%handle), stat)
  end subroutine

  subroutine destroy(self, stat)
    class(chorale_trainer), intent(inout) :: self
    integer, intent(out), optional :: stat
    call finish(c_destroy(self%handle), stat)
    self%handle = c_null_ptr
  end subroutine

  subroutine train_f32(self, x, y, loss, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real32), intent(in), target :: x(:, :), y(:, :)
    real(real64), intent(out), optional :: loss
    integer, intent(out), optional :: stat
    call finish(c_train(self%handle, rows_f32(x), rows_f32(y), loss), stat)
  end subroutine
  subroutine train_f64(self, x, y, loss, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real64), intent(in), target :: x(:, :), y(:, :)
    real(real64), intent(out), optional :: loss
    integer, intent(out), optional :: stat
    call finish(c_train(self%handle, rows_f64(x), rows_f64(y), loss), stat)
  end subroutine
  subroutine train_labels(self, x, y, loss, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real32), intent(in), target :: x(:, :)
    integer(int32), intent(in), target :: y(:, :)
    real(real64), intent(out), optional :: loss
    integer, intent(out), optional :: stat
    call finish(c_train(self%handle, rows_f32(x), rows_i32(y), loss), stat)
  end subroutine

  subroutine evaluate_f32(self, x, y, loss, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real32), intent(in), target :: x(:, :), y(:, :)
    real(real64), intent(out) :: loss
    integer, intent(out), optional :: stat
    call finish(c_evaluate(self%handle, rows_f32(x), rows_f32(y), loss), stat)
  end subroutine
  subroutine evaluate_f64(self, x, y, loss, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real64), intent(in), target :: x(:, :), y(:, :)
    real(real64), intent(out) :: loss
    integer, intent(out), optional :: stat
    call finish(c_evaluate(self%handle, rows_f64(x), rows_f64(y), loss), stat)
  end subroutine
  subroutine evaluate_labels(self, x, y, loss, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real32), intent(in), target :: x(:, :)
    integer(int32), intent(in), target :: y(:, :)
    real(real64), intent(out) :: loss
    integer, intent(out), optional :: stat
    call finish(c_evaluate(self%handle, rows_f32(x), rows_i32(y), loss), stat)
  end subroutine

  subroutine predict_f32(self, x, y, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real32), intent(in), target :: x(:, :)
    real(real32), intent(inout), target :: y(:, :)
    integer, intent(out), optional :: stat
    call finish(c_predict(self%handle, rows_f32(x), rows_f32(y)), stat)
  end subroutine
  subroutine predict_f64(self, x, y, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real64), intent(in), target :: x(:, :)
    real(real64), intent(inout), target :: y(:, :)
    integer, intent(out), optional :: stat
    call finish(c_predict(self%handle, rows_f64(x), rows_f64(y)), stat)
  end subroutine

  subroutine save_variables(self, file, stat)
    class(chorale_trainer), intent(inout) :: self
    character(*), intent(in) :: file
    integer, intent(out), optional :: stat
    call finish(c_save(self%handle, trim(file) // c_null_char), stat)
  end subroutine
  subroutine load_variables(self, file, stat)
    class(chorale_trainer), intent(inout) :: self
    character(*), intent(in) :: file
    integer, intent(out), optional :: stat
    call finish(c_load(self%handle, trim(file) // c_null_char), stat)
  end subroutine

  subroutine metric(self, name, value, stat)
    class(chorale_trainer), intent(in) :: self
    character(*), intent(in) :: name
    real(real64), intent(out) :: value
    integer, intent(out), optional :: stat
    call finish(c_metric(self%handle, trim(name) // c_null_char, value), stat)
  end subroutine

  ! How many numbers a row has: of x, of y in train, and of y in predict; 0 if it fails.
  subroutine widths(self, inputs, targets, outputs, stat)
    class(chorale_trainer), intent(in) :: self
    integer, intent(out) :: inputs, targets, outputs
    integer, intent(out), optional :: stat
    integer(c_size_t) :: numbers(3)
    integer(c_int) :: code
    numbers = 0
    code = c_widths(self%handle, numbers(1), numbers(2), numbers(3))
    inputs = int(numbers(1))
    targets = int(numbers(2))
    outputs = int(numbers(3))
    call finish(code, stat)
  end subroutine

  subroutine steps(self, number, stat)
    class(chorale_trainer), intent(in) :: self
    integer(int64), intent(out) :: number
    integer, intent(out), optional :: stat
    call finish(c_steps(self%handle, number), stat)
  end subroutine

  subroutine set_learning_rate(self, rate, stat)
    class(chorale_trainer), intent(inout) :: self
    real(real64), intent(in) :: rate
    integer, intent(out), optional :: stat
    call finish(c_set_learning_rate(self%handle, rate), stat)
  end subroutine

  ! The sentence of the last procedure that failed.
  function chorale_message() result(text)
    character(:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    type(c_ptr) :: from
    integer :: i
    from = c_message()
    call c_f_pointer(from, letters, [c_strlen(from)])
    allocate(character(size(letters)) :: text)
    do i = 1, size(letters)
      text(i:i) = letters(i)
    end do
  end function

  subroutine finish(code, stat)
    integer(c_int), intent(in) :: code
    integer, intent(out), optional :: stat
    if (present(stat)) then
      stat = code
    else if (code /= 0) then
      write (error_unit, "(a)") chorale_message()
      stop code, quiet=.true.
    end if
  end subroutine

  ! The second dimension of an array are rows. The library refuses a section of a larger one, and tells all ranks.
  type(rows_in_memory) function rows_f32(x) result(made)
    real(real32), intent(in), target :: x(:, :)
    made = described(c_null_ptr, shape(x), merge(f32, scattered, is_contiguous(x)))
    if (size(x) > 0) made%numbers = c_loc(x(1, 1))
  end function
  type(rows_in_memory) function rows_f64(x) result(made)
    real(real64), intent(in), target :: x(:, :)
    made = described(c_null_ptr, shape(x), merge(f64, scattered, is_contiguous(x)))
    if (size(x) > 0) made%numbers = c_loc(x(1, 1))
  end function
  type(rows_in_memory) function rows_i32(x) result(made)
    integer(int32), intent(in), target :: x(:, :)
    made = described(c_null_ptr, shape(x), merge(i32, scattered, is_contiguous(x)))
    if (size(x) > 0) made%numbers = c_loc(x(1, 1))
  end function

  type(rows_in_memory) function described(numbers, extents, kind_of) result(made)
    type(c_ptr), intent(in) :: numbers
    integer, intent(in) :: extents(2)
    integer(c_int), intent(in) :: kind_of
    made = rows_in_memory(numbers, int(extents(1), c_size_t), int(extents(2), c_size_t), kind_of)
  end function

end module chorale
